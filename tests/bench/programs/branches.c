// Calls a function from many distinct stacks: branches COUNT.
//
// Each of ten levels calls the next from one of four places. COUNT is at most a million.

#include <stdlib.h>

#define CALLED __attribute__((noinline))

volatile unsigned sum;

CALLED void last_of_the_calls(void) { sum++; }

CALLED void call_from_one_of_four_places(int level, unsigned places) {
  if (level == 0) {
    last_of_the_calls();
    sum++;
    return;
  }
  switch (places & 3) {
  case 0:
    call_from_one_of_four_places(level - 1, places >> 2);
    sum += 1;
    break;
  case 1:
    call_from_one_of_four_places(level - 1, places >> 2);
    sum += 2;
    break;
  case 2:
    call_from_one_of_four_places(level - 1, places >> 2);
    sum += 3;
    break;
  case 3:
    call_from_one_of_four_places(level - 1, places >> 2);
    sum += 4;
    break;
  }
}

CALLED void first_of_the_calls(unsigned places) {
  call_from_one_of_four_places(10, places);
  sum++;
}

CALLED void all_of_the_calls(unsigned places) {
  first_of_the_calls(places);
  sum++;
}

int main(int argc, char **argv) {
  unsigned count = argc > 1 ? atoi(argv[1]) : 0;
  for (unsigned i = 0; i < count; i++)
    all_of_the_calls(i);
  return 0;
}
