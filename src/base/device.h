// Marks functions that device kernels call too. The mark is empty for compilers other than nvcc.
#pragma once

#if defined(__CUDACC__)
#define HOCKET_HOST_DEVICE __host__ __device__
#else
#define HOCKET_HOST_DEVICE
#endif
