/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Another one: the state of a board's peer table. */
#ifndef WEFT_MX__DRIVER_INTERFACE_H
#define WEFT_MX__DRIVER_INTERFACE_H

#include "../mx_io.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mx_mapper_state {
    uint32_t board_number;
    uint8_t mapper_mac[6];
    uint16_t iport;
    uint32_t map_version;
    uint32_t num_hosts;
    uint32_t network_configured;
    uint32_t routes_valid;
    uint32_t level;
    uint32_t flags;
} mx_mapper_state_t;

/* Of the board of a handle of mx_open_board or mx_raw_handle: what a mapping daemon of this process said last of it
 * (mx_raw_set_map_version), else its own peer table, which is always configured, as version 1. */
mx_return_t mx__get_mapper_state(mx_endpt_handle_t handle, mx_mapper_state_t *state);

#ifdef __cplusplus
}
#endif

#endif
