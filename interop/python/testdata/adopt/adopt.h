#ifndef USMB_ADOPT_H
#define USMB_ADOPT_H
#include "usmb_pystate.h"
#endif
