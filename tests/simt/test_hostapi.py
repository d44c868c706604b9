"""The host side of the simulated GPU behaves as Numba-CUDA's: memory, copies, views, streams, events, the device."""

import gc

import numpy as np
import pytest

from dwlab.gpu import occupancy
from dwlab.simt import cuda as facade
from dwlab.simt import hostapi, options
from dwlab.simt import hostapi as cuda

pytestmark = pytest.mark.quick


# --- transfers -----------------------------------------------------------------------------------


def test_a_device_array_is_memory_of_its_own():
    host = np.arange(10, dtype=np.float32)
    device = cuda.to_device(host)
    host[:] = -1
    assert device.copy_to_host().tolist() == list(range(10))
    back = device.copy_to_host()
    back[:] = 7
    assert device.copy_to_host().tolist() == list(range(10))
    assert not np.shares_memory(device.storage, host)


def test_to_device_takes_scalars_lists_and_an_array_to_fill_and_leaves_device_arrays_alone():
    assert cuda.to_device(3).copy_to_host() == 3
    assert cuda.to_device([1, 2]).dtype == np.int64
    device = cuda.to_device(np.ones(3))
    assert cuda.to_device(device) is device
    target = cuda.device_array(4, np.int32)
    assert cuda.to_device(np.arange(4, dtype=np.int32), to=target) is target
    assert target.copy_to_host().tolist() == [0, 1, 2, 3]
    assert cuda.to_device(np.zeros(4, np.int32), copy=False, to=target) is target
    assert target.copy_to_host().tolist() == [0, 1, 2, 3]
    device = cuda.to_device(np.zeros(4, np.float32), copy=False)
    assert device.shape == (4,) and np.isnan(device.copy_to_host()).all()


# --- allocation, views, arguments ----------------------------------------------------------------


@pytest.mark.parametrize("shape", [2.5, "12", (2, 2.5), np.float64(3), None, {}, (True, 2), np.int64(3)])
def test_a_shape_that_is_none_is_refused(shape):
    with pytest.raises(TypeError, match="shape"):
        cuda.device_array(shape)


def test_a_bad_size_order_stride_or_type_is_refused_and_what_is_too_large():
    with pytest.raises(ValueError, match="negative"):
        cuda.device_array(-1)
    with pytest.raises(ValueError, match="C/F order"):
        cuda.device_array((2, 2), order="A")
    with pytest.raises(ValueError, match="strides not match ndim"):
        cuda.device_array((2, 2), strides=(8,))
    with pytest.raises(TypeError):
        cuda.device_array(3, dtype="not a type")
    with pytest.raises(MemoryError, match=r"TiB|GiB.*smaller shape"):
        cuda.device_array(1 << 60)


def test_fresh_memory_is_poison_and_the_same_in_every_run():
    assert np.isnan(cuda.device_array(8, np.float32).copy_to_host()).all()
    assert np.isnan(cuda.device_array(8, np.complex128).copy_to_host()).all()
    assert (cuda.device_array(8, np.int32).copy_to_host() == -1).all()
    assert cuda.device_array(8, np.bool_).copy_to_host().tolist() == [True] * 8


def test_allocations_start_at_256_bytes_and_slices_remember_their_offset():
    for size in (1, 3, 1000):
        device = cuda.device_array(size, np.int8)
        assert device.storage.ctypes.data % 256 == 0 and device.offset == 0
    device = cuda.to_device(np.arange(40, dtype=np.float32).reshape(4, 10))
    assert device[1:].offset == 40 and device[2, 3:].offset == 92 and device[::-1].offset == 120
    assert device[1:].allocation is device.allocation
    assert device.copy_to_host().ctypes.data != device.storage.ctypes.data


def test_what_nothing_has_written_is_known_and_never_told_of_another_dtype():
    device = cuda.device_array((2, 4), np.float32)
    assert device.written.shape == (2, 4) and not device.written.any()
    device[0] = 1.0
    assert device.written.tolist() == [[True] * 4, [False] * 4]
    device[1, 1:3].copy_to_device(np.zeros(2, np.float32))
    assert device[1].written.tolist() == [False, True, True, False]
    device[1].written[0] = True
    assert device.written[1, 0]
    copy = cuda.device_array((2, 4), np.float32)
    copy.copy_to_device(device)
    assert copy.written.tolist() == device.written.tolist()
    device.copy_to_device(np.zeros((2, 4), np.float32))
    assert device.written is None
    assert cuda.to_device(np.zeros(3)).written is None
    device = cuda.device_array(4, np.float32)
    device[:2] = 0.0
    assert device.view(np.int32).written.tolist() == [True, True, False, False]
    assert device.view(np.uint8).written is None


def test_memory_is_freed_with_the_array_and_what_is_free_is_told():
    gc.collect()
    before = hostapi._allocated_bytes()
    device = cuda.device_array(1 << 20, np.uint8)
    view = device[10:]
    assert hostapi._allocated_bytes() == before + (1 << 20)
    del device
    assert hostapi._allocated_bytes() == before + (1 << 20)
    del view
    assert hostapi._allocated_bytes() == before
    info = cuda.current_context().get_memory_info()
    free, total = info
    assert 0 <= free <= total and total > 1 << 28


def test_records():
    dtype = np.dtype([("x", "f4"), ("n", "i4"), ("v", "f8", 3)])
    host = np.zeros(2, dtype)
    host[1] = (1.5, 7, (1, 2, 3))
    device = cuda.to_device(host)
    assert isinstance(device[1], cuda.DeviceRecord)
    assert device[1]["x"] == 1.5 and device[1]["v"].copy_to_host().tolist() == [1, 2, 3]
    device[1]["n"] = 9
    assert device.copy_to_host()["n"].tolist() == [0, 9]
    assert cuda.to_device(host[1])["n"] == 7
    assert device["x"].copy_to_host().tolist() == [0, 1.5]


def test_what_is_a_cuda_array_and_which_other_arguments_pass():
    device = cuda.device_array(3)
    assert cuda.is_cuda_array(device) and cuda.is_cuda_array(cuda.mapped_array(2))
    assert not cuda.is_cuda_array(np.zeros(3)) and not cuda.is_cuda_array([1])
    assert cuda.as_cuda_array(device) is device
    with pytest.raises(TypeError, match="doesn't implement the cuda array interface"):
        cuda.as_cuda_array(np.zeros(3))

    class OnRealGpu:
        __cuda_array_interface__ = {"shape": (1,), "typestr": "<f4", "data": (16, False), "version": 3}

    with pytest.raises(TypeError, match="real GPU's memory.*DWLAB_TARGET=gpu"):
        cuda.as_cuda_array(OnRealGpu())
    assert not hasattr(device, "__cuda_array_interface__"), "would pass a host address off as a GPU's"
    assert hostapi.kernel_argument(device) == (device, None)
    assert hostapi.kernel_argument(3) == (3, None)
    read_only = np.zeros(2)
    read_only.flags.writeable = False
    assert hostapi.kernel_argument(read_only)[1] is None
    with pytest.raises(ValueError, match="non-contiguous"):
        hostapi.kernel_argument(np.zeros(8)[::2])


# --- streams and events --------------------------------------------------------------------------


def test_streams():
    one, two = cuda.stream(), cuda.stream()
    assert one != two and int(one) != int(two) and one and "CUDA stream" in repr(one)
    assert repr(cuda.default_stream()) == "<Default CUDA stream>"
    assert repr(cuda.legacy_default_stream()) == "<Legacy default CUDA stream>"
    assert repr(cuda.per_thread_default_stream()) == "<Per-thread default CUDA stream>"
    one.synchronize()
    with one.auto_synchronize() as inside:
        assert inside is one
    device = cuda.to_device(np.zeros(3), stream=one)
    assert device.stream is one and device[1:].stream is one and device.bind(two).stream is two
    assert np.shares_memory(device.bind(two).storage, device.storage)
    device.copy_to_host(stream=two)
    with pytest.raises(TypeError, match="stream must be"):
        device.copy_to_host(stream="fast")
    with pytest.raises(TypeError, match="stream must be"):
        cuda.to_device(np.zeros(3), stream=3)


def test_events_know_order_but_no_time():
    start, end = cuda.event(), cuda.event(timing=False)
    start.record()
    end.record(stream=cuda.stream())
    end.wait(cuda.stream())
    end.synchronize()
    assert end.query() is True
    for ask in (lambda: start.elapsed_time(end), lambda: cuda.event_elapsed_time(start, end)):
        with pytest.raises(RuntimeError, match="no time here.*records") as caught:
            ask()
        assert isinstance(caught.value, options.SimtError)


# --- the device ----------------------------------------------------------------------------------


def test_the_one_device():
    assert cuda.is_available() is True and cuda.is_supported_version()
    assert len(cuda.gpus) == 1 and len(cuda.list_devices()) == 1
    with cuda.gpus[0]:
        pass
    device = cuda.get_current_device()
    assert cuda.select_device(0) == device == cuda.current_context().device
    assert isinstance(device.name, str) and device.id == 0 and device.uuid.startswith("GPU-")
    assert device.WARP_SIZE == 32 and device.MAX_THREADS_PER_BLOCK == 1024
    assert device.MAX_SHARED_MEMORY_PER_BLOCK == 49152
    assert (device.MAX_BLOCK_DIM_X, device.MAX_BLOCK_DIM_Y, device.MAX_BLOCK_DIM_Z) == (1024, 1024, 64)
    assert device.MULTIPROCESSOR_COUNT > 0 and cuda.gpus[0].MULTIPROCESSOR_COUNT == device.MULTIPROCESSOR_COUNT
    assert device.attributes()["WARP_SIZE"] == 32 and cuda.gpus.current.id == 0
    for bad in (1, -2):
        with pytest.raises(IndexError, match="one GPU, number 0"):
            cuda.select_device(bad)
    with pytest.raises(AttributeError, match="NO_SUCH_THING.*WARP_SIZE"):
        device.NO_SUCH_THING  # noqa: B018
    with pytest.raises(AttributeError):
        cuda.current_context().memalloc  # noqa: B018


@pytest.mark.parametrize("capability", sorted(occupancy.LIMITS))
def test_the_device_has_the_limits_of_the_stated_compute_capability(capability):
    with options.using(options.Options(compute_capability=capability)):
        device = cuda.get_current_device()
        limits = occupancy.limits(capability)
        assert device.compute_capability == capability
        assert f"{capability[0]}.{capability[1]}" in device.name
        assert device.MAX_THREADS_PER_MULTIPROCESSOR == limits.threads_per_sm
        assert device.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN == limits.shared_per_block_optin
        assert device.MAX_SHARED_MEMORY_PER_MULTIPROCESSOR == limits.shared_per_sm
        assert (device.COMPUTE_CAPABILITY_MAJOR, device.COMPUTE_CAPABILITY_MINOR) == capability


def test_host_code_written_for_a_gpu_meets_no_surprise_and_detect_says_that_it_is_simulated(capsys):
    context = cuda.current_context()
    with context:
        context.push()
        context.pop()
    context.reset()
    assert cuda.detect() is True
    text = capsys.readouterr().out
    assert "Found 1 CUDA devices" in text and "simulated" in text.lower()


def test_what_the_laptop_has_not_is_said_by_name():
    for name in ("open_ipc_array", "declare_device", "no_such_thing"):
        with pytest.raises(AttributeError, match=f"laptop GPU has no cuda.{name}"):
            getattr(facade, name)
