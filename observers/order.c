/* Programs that look for an order of memory accesses, each in a wrong version, which relies on one that nobody gives, and in a
 * right version. Under some order of accesses that the device may choose the wrong one finds stale bytes; the right one never
 * does.
 *
 * Each iteration fills the source with a pattern of its own, moves it, and looks at the target as soon as the program's own
 * reason says that it is there. It then waits until nothing is on its way any more, so that iterations do not mix.
 */
#include "rig.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH = 4096, WORD = 8 };

/* The pattern of an iteration: never zero, and different in consecutive ones. */
static uint8_t mark;

static void fill(const struct memory *memory, uint8_t value)
{
	memset((void *)memory->bytes, value, LENGTH);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* How many bytes do not have the value. */
static unsigned stale(const struct memory *memory, uint8_t value)
{
	unsigned count = 0;

	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	for (unsigned i = 0; i < LENGTH; i++)
		count += memory->bytes[i] != value;
	return count;
}

static void see(const volatile uint8_t *byte)
{
	if (!sees(byte, mark))
		die("the byte that is polled never changed");
}

static const struct extra QUIET = { .quiet = true };

/* A request that takes a receive request with it, and its receive completion. */
static void tell(struct rig *rig, int pair, enum ibv_wr_opcode opcode, uint32_t length)
{
	post_receive(&rig->passive[pair]);
	post(&rig->active[pair], opcode, &rig->source, opcode == IBV_WR_SEND ? NULL : &rig->target, length, QUIET);
	completed(rig->passive[pair].receives, "the receive request");
}

static unsigned last_byte(struct rig *rig, bool right)
{
	if (right) {
		tell(rig, 0, IBV_WR_RDMA_WRITE_WITH_IMM, LENGTH);
	} else {
		post(&rig->active[0], IBV_WR_RDMA_WRITE, &rig->source, &rig->target, LENGTH, QUIET);
		see(&rig->target.bytes[LENGTH - 1]);
	}
	return stale(&rig->target, mark);
}

static unsigned flag(struct rig *rig, bool right)
{
	post(&rig->active[0], IBV_WR_RDMA_WRITE, &rig->source, &rig->target, LENGTH, QUIET);
	if (right) {
		tell(rig, 0, IBV_WR_SEND, 0);
	} else {
		post(&rig->active[0], IBV_WR_RDMA_WRITE, &rig->source, &rig->flag, WORD, QUIET);
		see(rig->flag.bytes);
	}
	return stale(&rig->target, mark);
}

static unsigned flag_on_another_queue(struct rig *rig, bool right)
{
	if (right) {
		tell(rig, 0, IBV_WR_RDMA_WRITE_WITH_IMM, LENGTH);
	} else {
		post(&rig->active[0], IBV_WR_RDMA_WRITE, &rig->source, &rig->target, LENGTH, QUIET);
		post(&rig->active[1], IBV_WR_RDMA_WRITE, &rig->source, &rig->flag, WORD, QUIET);
		see(rig->flag.bytes);
	}
	return stale(&rig->target, mark);
}

static unsigned completion_of_another_queue(struct rig *rig, bool right)
{
	if (right) {
		tell(rig, 0, IBV_WR_RDMA_WRITE_WITH_IMM, LENGTH);
	} else {
		post(&rig->active[0], IBV_WR_RDMA_WRITE, &rig->source, &rig->target, LENGTH, QUIET);
		tell(rig, 1, IBV_WR_SEND, 0);
	}
	return stale(&rig->target, mark);
}

static unsigned flush_read(struct rig *rig, bool right)
{
	struct end *flusher = &rig->active[right ? 0 : 1];

	post(&rig->active[0], IBV_WR_RDMA_WRITE, &rig->source, &rig->target, LENGTH, QUIET);
	post(flusher, IBV_WR_RDMA_READ, &rig->scratch, &rig->flag, WORD, (struct extra){ 0 });
	completed(flusher->sends, "the READ");
	return stale(&rig->target, mark);
}

static unsigned read_after_write(struct rig *rig, bool right)
{
	const struct memory *target = right ? &rig->target : &rig->unordered_target;

	post(&rig->active[0], IBV_WR_RDMA_WRITE, &rig->source, target, LENGTH, QUIET);
	post(&rig->active[0], IBV_WR_RDMA_READ, &rig->scratch, target, LENGTH, (struct extra){ 0 });
	completed(rig->active[0].sends, "the READ");
	return stale(&rig->scratch, mark);
}

static unsigned atomic_flag(struct rig *rig, bool right)
{
	/* The flag counts up from what it was; its low byte is looked at. */
	uint8_t before = rig->flag.bytes[0];
	uint64_t add = (uint8_t)(mark - before);

	post(&rig->active[0], IBV_WR_RDMA_WRITE, &rig->source, &rig->target, LENGTH, QUIET);
	post(&rig->active[right ? 0 : 1], IBV_WR_ATOMIC_FETCH_AND_ADD, &rig->scratch, &rig->flag, WORD,
	     (struct extra){ .quiet = true, .add = add });
	see(rig->flag.bytes);
	return stale(&rig->target, mark);
}

static unsigned fence(struct rig *rig, bool right)
{
	/* The fence of verbs waits for READ and atomic requests, not for a WRITE. */
	post(&rig->active[0], IBV_WR_RDMA_WRITE, &rig->source, &rig->target, LENGTH, (struct extra){ .quiet = !right });
	if (right)
		completed(rig->active[0].sends, "the WRITE");
	post(&rig->active[0], IBV_WR_RDMA_WRITE, &rig->source, &rig->flag, WORD, (struct extra){ .quiet = true, .fence = true });
	see(rig->flag.bytes);
	return stale(&rig->target, mark);
}

static unsigned forward(struct rig *rig, bool right)
{
	/* What a READ brings is sent on; the key of the buffer gives up the order of a gather after an earlier store. */
	post(&rig->active[0], IBV_WR_RDMA_READ, &rig->unordered_scratch, &rig->source, LENGTH, QUIET);
	post(&rig->active[0], IBV_WR_RDMA_WRITE, &rig->unordered_scratch, &rig->target, LENGTH, (struct extra){ .fence = right });
	completed(rig->active[0].sends, "the WRITE");
	return stale(&rig->target, mark);
}

static unsigned reuse(struct rig *rig, bool right)
{
	post(&rig->active[0], IBV_WR_RDMA_WRITE, &rig->source, &rig->target, LENGTH, (struct extra){ 0 });
	if (right)
		completed(rig->active[0].sends, "the WRITE");
	fill(&rig->source, 0);
	if (!right)
		completed(rig->active[0].sends, "the WRITE");
	return stale(&rig->target, mark);
}

static const struct program {
	const char *name;
	unsigned (*run)(struct rig *rig, bool right);
	/* Whether it uses keys without read-after-write order. */
	bool unordered;
	const char *wrong, *right;
} programs[] = {
	{ "last-byte", last_byte, false, "poll the last byte of a WRITE", "wait for the receive completion of a WRITE with immediate" },
	{ "flag", flag, false, "WRITE data, WRITE flag, poll the flag", "WRITE data, SEND, wait for its receive completion" },
	{ "flag-other-qp", flag_on_another_queue, false, "WRITE data, WRITE flag on another queue pair, poll the flag",
	  "wait for a receive completion of the data's own queue pair" },
	{ "cqe-other-qp", completion_of_another_queue, false, "WRITE data, SEND on another queue pair, wait for its receive completion",
	  "wait for a receive completion of the data's own queue pair" },
	{ "flush-read", flush_read, false, "WRITE data, READ on another queue pair as a flush", "WRITE data, READ on the same queue pair as a flush" },
	{ "read-after-write", read_after_write, true, "WRITE, READ the same bytes through a key that is UNORDERED",
	  "WRITE, READ the same bytes through a key that is RELAXED" },
	{ "atomic-flag", atomic_flag, false, "WRITE data, fetch-and-add a flag on another queue pair", "WRITE data, fetch-and-add a flag on the same queue pair" },
	{ "fence", fence, false, "WRITE data, fenced WRITE of a flag", "WRITE data, wait for its completion, WRITE a flag" },
	{ "forward", forward, true, "READ into an UNORDERED buffer, WRITE it on", "READ into an UNORDERED buffer, fenced WRITE of it" },
	{ "reuse", reuse, false, "change the source of a WRITE before it completes", "change the source of a WRITE after it completes" },
};

enum { PROGRAMS = sizeof(programs) / sizeof(programs[0]) };

static unsigned run(struct rig *rig, const struct program *program, bool right, unsigned iterations)
{
	unsigned failures = 0, first = 0, bytes = 0;

	for (unsigned i = 0; i < iterations; i++) {
		mark = i % 255 + 1;
		fill(&rig->source, mark);
		fill(&rig->target, 0);
		fill(&rig->scratch, 0);
		if (program->run != atomic_flag)
			fill(&rig->flag, 0);

		unsigned found = program->run(rig, right);

		if (found && !failures++) {
			first = i + 1;
			bytes = found;
		}
		for (int pair = 0; pair < PAIRS; pair++)
			settle(rig, pair);
	}
	printf("{\"program\":\"%s\",\"version\":\"%s\",\"iterations\":%u,\"failures\":%u", program->name, right ? "right" : "wrong", iterations,
	       failures);
	if (failures)
		printf(",\"first_failure\":%u,\"stale_bytes\":%u", first, bytes);
	printf("}\n");
	fflush(stdout);
	return failures;
}

static void usage(FILE *file)
{
	fprintf(file, "usage: order [-d DEVICE] [-g GID_INDEX] [-n ITERATIONS] {PROGRAM|all} [wrong|right]\n\n"
		      "Looks for stale data where an order of memory accesses is relied upon. Prints a JSON line for each program and\n"
		      "version; exits with 1 if any found stale data, 2 if it could not run.\n\n"
		      "  -d  RDMA device (the first mlx5 one)\n  -g  index of the GID to use (1)\n  -n  iterations (100)\n\nPrograms:\n");
	for (int i = 0; i < PROGRAMS; i++)
		fprintf(file, "  %-16s wrong: %s\n  %-16s right: %s\n", programs[i].name, programs[i].wrong, "", programs[i].right);
}

static unsigned number(const char *text, unsigned most)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (!*text || *end || value > most)
		die("'%s' is not a number up to %u", text, most);
	return value;
}

int main(int argc, char **argv)
{
	const char *device = NULL;
	unsigned iterations = 100, gid_index = 1, failures = 0, ran = 0;
	int option;

	while ((option = getopt(argc, argv, "d:g:n:h")) != -1) {
		switch (option) {
		case 'd':
			device = optarg;
			break;
		case 'g':
			gid_index = number(optarg, 255);
			break;
		case 'n':
			iterations = number(optarg, 1000000);
			break;
		default:
			usage(option == 'h' ? stdout : stderr);
			return option == 'h' ? 0 : 2;
		}
	}
	if (optind >= argc || argc - optind > 2) {
		usage(stderr);
		return 2;
	}

	const char *name = argv[optind], *version = argv[optind + 1];
	bool all = !strcmp(name, "all");

	if (version && strcmp(version, "wrong") && strcmp(version, "right"))
		die("a program is 'wrong' or 'right', not '%s'", version);
	for (int i = 0; i < PROGRAMS; i++) {
		static struct rig rig;
		static bool unordered;

		if (!all && strcmp(name, programs[i].name))
			continue;
		if (!ran++ || (programs[i].unordered && !unordered)) {
			rig_open(&rig, device, gid_index, programs[i].unordered);
			unordered = programs[i].unordered;
		}
		for (int right = 0; right < 2; right++)
			if (!version || right == !strcmp(version, "right"))
				failures += run(&rig, &programs[i], right, iterations);
	}
	if (!ran)
		die("no program '%s'; see order -h", name);
	return failures != 0;
}
