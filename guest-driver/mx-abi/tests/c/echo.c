/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Two programs: `echo` opens endpoint 0 of board 0, says its address, and sends back COUNT messages of any source; `echo ADDRESS`
 * sends them, short and long, sleeping while it waits, and checks what comes back. */
#include <stdint.h>

#include <open-mx.h>

#include "check.h"

enum { COUNT = 60 };
#define LONG_MS 20000

static unsigned char out[8 << 20], in[8 << 20];

static omx_status_t end_of(omx_endpoint_t e, omx_request_t *request)
{
    omx_status_t status;
    uint32_t result;
    OK(omx_wait(e, request, &status, &result, LONG_MS));
    CHECK(result == 1);
    return status;
}

static omx_status_t finish(omx_endpoint_t e, omx_request_t *request)
{
    omx_status_t status = end_of(e, request);
    CHECK(status.code == OMX_SUCCESS);
    return status;
}

int main(int argc, char **argv)
{
    omx_endpoint_t e;
    omx_endpoint_addr_t to;
    omx_request_t request;
    omx_status_t status;
    OK(omx_init());
    OK(omx_open_endpoint(0, argc > 1 ? OMX_ANY_ENDPOINT : 0, 7, NULL, 0, &e));
    if (argc == 1) {
        uint64_t nic;
        OK(omx_board_number_to_nic_id(0, &nic));
        printf("%llx\n", (unsigned long long)nic);
        fflush(stdout);
        for (int i = 0; i < COUNT; i++) {
            OK(omx_irecv(e, in, sizeof in, 0, 0, NULL, &request));
            status = finish(e, &request);
            OK(omx_issend(e, in, status.xfer_length, status.addr, status.match_info, NULL, &request));
            status = end_of(e, &request);
            /* Who has the last one ends, and when its acknowledgement is lost it is not repeated. */
            CHECK(status.code == OMX_SUCCESS || (i == COUNT - 1 && status.code == OMX_REMOTE_ENDPOINT_CLOSED));
        }
    } else {
        OK(omx_connect(e, strtoull(argv[1], NULL, 16), 0, 7, LONG_MS, &to));
        for (unsigned i = 0; i < COUNT; i++) {
            size_t len = i == COUNT - 1 ? sizeof out : i % 10 == 9 ? (1 << 20) - i : i * 97;
            fill(out, len, i);
            OK(omx_isend(e, out, len, to, i, NULL, NULL));
            OK(omx_irecv(e, in, sizeof in, i, ~(uint64_t)0, NULL, &request));
            status = finish(e, &request);
            CHECK(status.xfer_length == len && filled(in, len, i));
        }
    }
    OK(omx_close_endpoint(e));
    OK(omx_finalize());
    puts("echo done");
    return 0;
}
