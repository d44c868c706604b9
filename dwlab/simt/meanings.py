"""The tools that meanings of instructions are written with, for `register_instruction`: they get launch and values.

meaning(run, node, *arguments): node is the call. Numbers are Lanes, in one lane or in all; arrays are Array (global,
shared or constant memory) or LocalArray. It gives the result in every lane. Of run it may use

- where it is: exact (False: only types are looked for), called (its name in messages, which it sets), mask (the active
  lanes), nb, threads, padded, lanes_shape (blocks that run now, threads of one, in whole warps; both), rows,
  block_numbers, options, hunting, tracing, access_number, epoch, strands, watchers, watching;
- numbers: number, number_as, is_literal; of an array: in_root, writable, array.root.view(dtype);
- what is counted: operate, count_flops, count, trace.copied_again; for races check_races, event and events; for loops
  that wait note_read, note_places, note_change;
- what is wrong: refuse (an error), hazard and hazard_in, with first_lane, thread_name, element_name;
- what goes on beside the threads: unit(kind), the running blocks' Unit of this class, and units, all that there are;
  copies (those in flight), arrivals (what threads know of others, where arrivals order accesses), track_each.
"""

from dwlab.simt.interpreter import Execution
from dwlab.simt.memory import Array, Lanes, LocalArray, Mask, Root
from dwlab.simt.state import Unit
from dwlab.simt.trace import LOAD, STORE, WRITE
from dwlab.simt.types import cast

__all__ = ["Execution", "LOAD", "STORE", "WRITE", "Array", "Lanes", "LocalArray", "Mask", "Root", "Unit", "cast"]
