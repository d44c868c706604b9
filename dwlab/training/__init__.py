"""The application: S4ConvD trained on electricity meters, with the kernels of this package."""
