/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The extensions of MX as macros over Open-MX's calls. */
#ifndef WEFT_TRANSLATE_MX_EXTENSIONS_H
#define WEFT_TRANSLATE_MX_EXTENSIONS_H

#include "myriexpress.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef omx_unexp_handler_action_t mx_unexp_handler_action_t;
typedef omx_unexp_handler_t mx_unexp_handler_t;
#define MX_RECV_CONTINUE OMX_UNEXP_HANDLER_RECV_CONTINUE
#define MX_RECV_FINISHED OMX_UNEXP_HANDLER_RECV_FINISHED

#define mx_iconnect omx_iconnect
#define mx_disconnect omx_disconnect
#define mx_register_unexp_handler omx_register_unexp_handler
#define mx_forget omx_forget
#define mx_progress omx_progress
#define mx_set_endpoint_addr_context omx_set_endpoint_addr_context
#define mx_get_endpoint_addr_context omx_get_endpoint_addr_context
#define mx_set_request_timeout omx_set_request_timeout
#define mx_decompose_endpoint_addr2 omx_decompose_endpoint_addr_with_session

#ifdef __cplusplus
}
#endif

#endif
