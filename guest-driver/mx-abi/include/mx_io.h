/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The handle of a raw endpoint, a descriptor that can be polled, or of a board, which is a number and nothing else. */
#ifndef WEFT_MX_IO_H
#define WEFT_MX_IO_H

/* With the translating headers in front of the others their types are meant. */
#ifndef WEFT_TRANSLATE_MYRIEXPRESS_H
#include <myriexpress.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef int mx_endpt_handle_t;
#define MX__INVALID_HANDLE (-1)

#ifdef __cplusplus
}
#endif

#endif
