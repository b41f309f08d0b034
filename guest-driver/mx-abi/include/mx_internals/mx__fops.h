/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* An internal call of MX that some programs make. */
#ifndef WEFT_MX__FOPS_H
#define WEFT_MX__FOPS_H

#include "../mx_io.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Succeeds and opens nothing: the handle is the name of the board for mx__get_mapper_state. */
mx_return_t mx_open_board(int board_number, mx_endpt_handle_t *handle);

#ifdef __cplusplus
}
#endif

#endif
