"""The environment that a workbook runs in: lab makes and starts it, doctor says what is wrong with it."""
