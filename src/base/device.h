// Marks functions that kernels of a device call too. Other compilers than nvcc see nothing of it.
#pragma once

#if defined(__CUDACC__)
#define HOCKET_HOST_DEVICE __host__ __device__
#else
#define HOCKET_HOST_DEVICE
#endif
