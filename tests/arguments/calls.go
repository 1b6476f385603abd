// Go functions.
package main

import (
	"fmt"
	"os"
	"sort"
	"strings"
)

type point struct{ x, y int }
type odd struct {
	a int8
	b int32
	c bool
}
type server struct {
	name string
	port uint16
	hits map[string]int
}

type handler interface{ handle(code int, path string) int }

//go:noinline
func (s *server) handle(code int, path string) int { s.hits[path] += code; return code + len(path) }

//go:noinline
func (p point) scaled(by int, n int8) point { return point{p.x * by, p.y * int(n)} }

//go:noinline
func scalars(a int8, b int16, c int32, d int64, e bool, f rune, g uint, h uint8, i int, j int, k int) int {
	return int(a) + int(b) + int(c) + int(d) + int(f) + int(g) + int(h) + i + j + k
}

//go:noinline
func text(s string, list []string, n int) int { return len(s) + len(list) + n }

//go:noinline
func mixed(o odd, f float64, n int, any interface{}, err error) int { return int(o.b) + int(f) + n }

//go:noinline
func arrays(a [1]int, b [3]int, n int) int { return a[0] + b[2] + n }

//go:noinline
func variadic(first int, rest ...int) int { return first + len(rest) }

//go:noinline
func unused(_ int, a int, _ string, b int) int { return a + b }

//go:noinline
func changed(a, b int) int { a, b = b, a+1; return a*2 - b }

//go:noinline
func dynamic(h handler, code int) int { return h.handle(code, "/dynamic") }

//go:noinline
func results(a int, b string) (string, int, error) { return b + "!", a, nil }

type pair[T any] struct {
	first T
	n     int
}

// A generic function also takes a dictionary of its type arguments as a hidden parameter.
//
//go:noinline
func larger[T int | string](a, b T, n int) T {
	if a > b && n > 0 {
		return a
	}
	return b
}

//go:noinline
func (p *pair[T]) with(first T, by int) int { p.first = first; p.n += by; return p.n }

//go:noinline
func each[K comparable, V any](m map[K]V, with func(K, V) int, n int) int {
	for k, v := range m {
		n += with(k, v)
	}
	return n
}

func closureOf(n int) func(string, int) int { return func(k string, v int) int { return len(k) + v + n } }

func main() {
	sum := 0
	for i := 1; i < 4; i++ {
		s := &server{"server", uint16(8080 + i), map[string]int{}}
		sum += s.handle(200+i, "/path") + dynamic(s, 300+i) + point{i, 2}.scaled(i+10, 3).x
		sum += scalars(int8(i), -2, 70000, -5000000000, i&1 == 1, 'é', 12, 13, 14, 15, 16)
		sum += text("text", []string{"a", "b"}, i) + mixed(odd{1, int32(i), true}, 2.5, i, i, nil)
		sum += arrays([1]int{i}, [3]int{1, 2, 3}, i) + variadic(i, 1, 2) + unused(i, i+1, "u", i+2) + changed(i, i+5)
		t, n, _ := results(i, "r")
		sum += len(t) + n
		closure := func(a int, b string) int { return a + len(b) + sum }
		sum += closure(i, "each")
		sum += larger(i, 2, i+3) + len(larger("a", "bb", i))
		sum += (&pair[string]{}).with("text", i) + (&pair[point]{n: i}).with(point{i, 3}, i+4)
		sum += each(map[string]int{"k": i}, closureOf(i), i+5)
	}
	words := strings.Fields("some words to be sorted here")
	sort.Strings(words)
	fmt.Fprintln(os.Stderr, sum, words)
}
