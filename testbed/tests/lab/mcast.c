/* Multicast groups in a guest: `mcast join GROUP PORT SECONDS` counts what arrives, `mcast send GROUP PORT COUNT` sends. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct sockaddr_in to = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	if (argc < 5 || fd < 0 || !inet_aton(argv[2], &to.sin_addr))
		return 2;
	to.sin_port = htons(atoi(argv[3]));
	if (!strcmp(argv[1], "send")) {
		for (int n = 0; n < atoi(argv[4]); n++)
			if (sendto(fd, "hello", 5, 0, (void *)&to, sizeof to) != 5)
				return 1;
		return 0;
	}
	struct ip_mreq group = { .imr_multiaddr = to.sin_addr };
	struct timeval patience = { .tv_sec = atoi(argv[4]) };
	char word[16];

	if (bind(fd, (void *)&to, sizeof to) ||
	    setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group) ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience))
		return 1;
	for (int n = 1; recv(fd, word, sizeof word, 0) == 5; n++) {
		printf("%d\n", n);
		fflush(stdout);
	}
	return 0;
}
