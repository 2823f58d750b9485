// at::parallel_for, which is a loop on one thread in files that are compiled without OpenMP.
#pragma once

#ifndef _OPENMP
#error "list this file among those that CMakeLists.txt compiles with OpenMP"
#endif

#include <ATen/Parallel.h>
