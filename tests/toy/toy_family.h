#pragma once

#include "tandem/models/encoder/family.h"

namespace tandem::toy {

extern const models::Family kToy;

}  // namespace tandem::toy
