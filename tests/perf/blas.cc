// A library that looks like a BLAS, or like libtorch over one. See blas_test.cc.
extern "C" {

#ifdef IS_BLAS
__attribute__((visibility("default"))) int sgemm_() { return 3; }
#else
int sgemm_();
__attribute__((visibility("default"))) int computes() { return sgemm_(); }
#endif

#ifdef IS_OPENBLAS
__attribute__((visibility("default"))) const char* openblas_get_config() { return ""; }
#endif
}
