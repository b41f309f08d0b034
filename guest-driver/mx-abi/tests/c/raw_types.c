/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Raw frames under another EtherType, from board 0 to board 1, the two ends of a cable: raw_types arrive, raw_types lost. */
#include <stdint.h>

#include <mx_extensions.h>
#include <mx_raw.h>
#include <myriexpress.h>

#include "check.h"

#define LONG_MS 20000
#define SHORT_MS 300

int main(int argc, char **argv)
{
    static unsigned char frame[60] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x88, 0xb7, 0, 0, 1};
    unsigned char buffer[2000];
    mx_raw_endpoint_t from, at;
    mx_raw_status_t status;
    uint32_t port, bytes;
    void *context;
    int seen = 0;
    CHECK(argc == 2);
    int arrive = !strcmp(argv[1], "arrive");
    OK(mx_init());
    OK(mx_raw_open_endpoint(0, NULL, 0, &from));
    OK(mx_raw_open_endpoint(1, NULL, 0, &at));
    /* The authorities' own raw frames are others. */
    memcpy(frame + 40, "this test", 9);
    OK(mx_raw_send(from, 0, NULL, 0, frame, sizeof frame, frame));
    bytes = sizeof buffer;
    OK(mx_raw_next_event(from, &port, &context, buffer, &bytes, LONG_MS, &status));
    CHECK(status == MX_RAW_SEND_COMPLETE && context == frame);
    do {
        bytes = sizeof buffer;
        OK(mx_raw_next_event(at, &port, &context, buffer, &bytes, arrive ? LONG_MS : SHORT_MS, &status));
        seen = status == MX_RAW_RECV_COMPLETE && !memcmp(buffer + 12, frame + 12, sizeof frame - 12);
    } while (status == MX_RAW_RECV_COMPLETE && !seen);
    CHECK(seen == arrive);
    OK(mx_raw_close_endpoint(at));
    OK(mx_raw_close_endpoint(from));
    OK(mx_finalize());
    puts("raw done");
    return 0;
}
