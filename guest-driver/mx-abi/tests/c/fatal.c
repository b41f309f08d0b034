/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Without a handler of its own a program that errs ends with status 255 and a sentence; fatal ends normally if the environment
 * says that errors return. */
#include <open-mx.h>

#include "check.h"

int main(void)
{
    omx_endpoint_t e;
    OK(omx_init());
    RETURNS(omx_open_endpoint(99, 0, 0, NULL, 0, &e), OMX_BOARD_NOT_FOUND);
    puts("fatal done");
    return 0;
}
