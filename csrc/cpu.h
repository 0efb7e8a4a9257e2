// Which instruction sets this build and this machine have.
#pragma once

#include <string>
#include <vector>

#include "forebay/kernels.h"

namespace forebay {

std::vector<std::string> supported_isas();  // "generic" first, best last

const Kernels& kernels_for(const std::string& isa);  // throws std::invalid_argument naming what is supported

}  // namespace forebay
