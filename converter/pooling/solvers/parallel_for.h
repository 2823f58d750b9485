// Includes at::parallel_for, which is a serial loop in files compiled without OpenMP.
#pragma once

#ifndef _OPENMP
#error "list this file among those that CMakeLists.txt compiles with OpenMP"
#endif

#include <ATen/Parallel.h>
