/* A hostile guest for LCI: `lci_liar SECONDS SEED INTERFACE MAC…` sends frames of EtherType 0x88B6 to the nodes that have these
 * addresses, most of them nearly right: packets, acknowledgements and groups of LCI, and tags of cards (SEND, DATA, STATE, CREDIT,
 * GONE) with numbers, credits, ranks and generations that nobody gave it. Prints how many it sent. */
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>

static uint64_t state;

static uint32_t some(uint32_t below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return below ? (uint32_t)((state * 0x9e3779b97f4a7c15) >> 33) % below : 0;
}

static void put(uint8_t *at, uint32_t value, int bytes)
{
	for (int n = 0; n < bytes; n++)
		at[n] = value >> 8 * (bytes - 1 - n);
}

static int mac(uint8_t *to, const char *text)
{
	unsigned int part[6];

	if (sscanf(text, "%x:%x:%x:%x:%x:%x", part, part + 1, part + 2, part + 3, part + 4, part + 5) != 6)
		return -1;
	for (int n = 0; n < 6; n++)
		to[n] = part[n];
	return 0;
}

/* A frame of LCI: a header of 52 or 80 bytes. */
static int lci(uint8_t *f, int nodes)
{
	int kind = some(9), packet = kind == 2 || kind == 3, length = packet ? some(200) : 0;

	put(f + 14, 0x4c43, 2);
	f[16] = 1;
	f[17] = kind;
	f[18] = some(2);
	f[19] = some(nodes + 1);
	f[20] = some(nodes);
	put(f + 24, length, 2);
	put(f + 28, 1 + some(1000), 4);
	put(f + 32, 1 + some(1000), 4);
	put(f + 36, some(200), 4);
	put(f + 40, some(200), 4);
	put(f + 44, some(1 << 30), 4);
	put(f + 48, some(1 << 30), 4);
	put(f + 52, some(3), 4);
	put(f + 56, some(100), 4);
	f[60] = some(nodes + 1);
	f[79] = some(1 << nodes);
	return 80 + length;
}

/* A tag of a card. */
static int tag(uint8_t *f, const uint8_t (*macs)[6], int nodes)
{
	static const uint16_t groups[] = { 1, 7, 32768, 32769, 33000 };
	int length = some(200);

	put(f + 14, 0x574d, 2);
	f[16] = 1;
	f[17] = some(7);
	/* Those that programs over LCI use, which begin at 32768, among them. */
	put(f + 18, some(2) ? groups[some(5)] : 32768 + some(32768), 2);
	put(f + 20, some(4), 2);
	f[22] = !some(20);
	f[23] = some(nodes + 1);
	memcpy(f + 24, macs[some(nodes)], 6);
	put(f + 30, some(3) ? some(100) : 0xffffff00u + some(200), 4);
	put(f + 36, length, 2);
	f[34] = some(3);
	f[35] = some(4);
	return 38 + length;
}

int main(int argc, char **argv)
{
	struct sockaddr_ll to = { .sll_family = AF_PACKET, .sll_protocol = htons(0x88b6), .sll_halen = 6 };
	static const uint8_t card[6] = { 2, 0x57, 0x45, 0x46, 0x54, 0 };
	uint8_t macs[16][6], own[6];
	int nodes = argc - 4, fd = socket(AF_PACKET, SOCK_RAW, 0);
	struct ifreq interface = { 0 };
	long sent = 0;

	if (nodes < 1 || nodes > 16 || fd < 0)
		return 2;
	state = atoll(argv[2]) * 2 + 1;
	strncpy(interface.ifr_name, argv[3], IFNAMSIZ - 1);
	if (ioctl(fd, SIOCGIFHWADDR, &interface))
		return 2;
	memcpy(own, interface.ifr_hwaddr.sa_data, 6);
	to.sll_ifindex = if_nametoindex(argv[3]);
	for (int n = 0; n < nodes; n++)
		if (mac(macs[n], argv[4 + n]))
			return 2;
	for (time_t end = time(NULL) + atoi(argv[1]); time(NULL) < end;) {
		uint8_t f[1500] = { 0 };
		int is_tag = some(2), len = is_tag ? tag(f, macs, nodes) : lci(f, nodes);

		/* To a node, to its own card, or to all. */
		memcpy(f, some(8) ? macs[some(nodes)] : card, 6);
		if (!some(50))
			memset(f, 0xff, 6);
		memcpy(f + 6, own, 6);
		put(f + 12, 0x88b6, 2);
		if (!some(8))
			f[some(len)] ^= 1 << some(8);
		if (!some(20))
			len = 14 + some(len - 14);
		if (sendto(fd, f, len < 60 ? 60 : len, 0, (void *)&to, sizeof to) > 0)
			sent++;
		/* The emulated processors are the nodes', too. */
		struct timespec pause = { .tv_nsec = 200000 };
		nanosleep(&pause, NULL);
	}
	printf("%ld\n", sent);
	return 0;
}
