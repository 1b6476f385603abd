// C++ functions with objects passed by value and by reference, methods, and results in memory.
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#define KEPT __attribute__((noinline))

static volatile long sink;

struct Point { int x, y; };
struct Empty {};

class Shape {
public:
    Shape(int id, std::string name) : id(id), name(std::move(name)) {}
    virtual ~Shape() {}
    virtual KEPT long area(int scale) const { return id * scale + sink; }
    KEPT std::string title(int n, char c) const { return name + c + std::to_string(n); }
    static KEPT long made(long n, const Shape &of) { return n + of.id; }
protected:
    int id;
    std::string name;
};

class Square : public Shape {
public:
    Square(int id, std::string name, int side) : Shape(id, std::move(name)), side(side) {}
    KEPT long area(int scale) const override { return side * side * scale; }
private:
    int side;
};

KEPT long by_value(std::string s, int n) { sink += n; return s.size() + n; }
KEPT long several(std::string a, std::vector<int> b, long c, std::map<int, int> d, int e)
{
    sink += c + e;
    return a.size() + b.size() + d.size();
}
KEPT long shared(std::shared_ptr<int> p, int n) { return *p + n + sink; }
KEPT long owned(std::unique_ptr<int> p, int n) { return *p + n + sink; }
KEPT std::string returned(int n, const char *text) { return std::string(text) + std::to_string(n); }
KEPT std::vector<int> filled(size_t n, int with) { return std::vector<int>(n, with); }
KEPT long view(std::string_view v, int n) { return v.size() + n + sink; }
KEPT long small(Point p, Empty e, int n) { (void)e; return p.x + p.y + n + sink; }
static KEPT long dead(int unused, const std::string &s, int n) { sink += n; return s.size(); }
static KEPT long part(const Point &p, int n) { sink += n; return p.x * n; }
template <typename T> KEPT T larger(T a, T b) { sink += 1; return a > b ? a : b; }
KEPT long many(std::string a, int b, int c, int d, int e, int f, std::string g, int h)
{
    sink += b + c + d + e + f + h;
    return a.size() + g.size();
}
template <typename T> class Box {
public:
    explicit Box(T of) : of(std::move(of)) {}
    KEPT long with(T other, int n) { of = std::move(other); return sizeof(T) + n + sink; }
    template <typename F, typename... Rest> KEPT long each(F f, int n, Rest... rest) const { return (f(rest) + ... + n) + sink; }
private:
    T of;
};
namespace inner { KEPT int twice(int n) { sink += n; return n * 2; } }

int main()
{
    long n = 0;
    for (int i = 1; i < 4; i++) {
        Square square(i, "square", i + 2);
        Shape *shape = &square;
        n += shape->area(i + 10) + shape->title(i, 'x').size() + Shape::made(i, square);
        n += by_value("hello", i + 20) + several("ab", {1, 2, 3}, i + 30, {{1, 2}}, i + 40);
        n += shared(std::make_shared<int>(5), i) + owned(std::make_unique<int>(6), i);
        n += returned(i, "text").size() + filled(i, 7).size() + view("view", i) + small({i, 2}, {}, i);
        n += dead(i, "dead", i + 50) + part({i, 9}, i + 60) + larger(i, 2) + (long)larger(2.5, 1.0 * i);
        n += many("a", i, i + 1, i + 2, i + 3, i + 4, "g", i + 5) + inner::twice(i);
        n += Box<int>(i).with(i + 1, i + 80) + Box<std::string>("box").with("other", i + 90);
        n += Box<char>('c').each([](long v) { return v * 2; }, i + 100, i, 3L) + Box<Point>({1, i}).each([n](int v) { return v + n; }, i, 'x');
        auto each = [&](int a, long b) { return a + b + n; };
        n += each(i, i + 70);
    }
    std::printf("%ld\n", n);
}
