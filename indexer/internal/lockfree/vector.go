package lockfree

const (
	vectorShift = 5
	vectorPage  = 1 << vectorShift
)

// Vector is a list that does not change: With returns another one, which shares with it all
// but what lies around the change. So a change costs about as much in a long list as in a short
// one, and whoever holds a Vector sees one state of all of it. The zero value is empty.
type Vector[T any] struct {
	n     int
	pages []*[vectorPage]*[vectorPage]T
}

// Len returns how many entries there are.
func (v *Vector[T]) Len() int { return v.n }

// At returns entry i, which is not to be changed; i is below Len.
func (v *Vector[T]) At(i int) *T {
	return &v.pages[i>>(2*vectorShift)][i>>vectorShift&(vectorPage-1)][i&(vectorPage-1)]
}

// With returns a list with t at place i, as long as that takes: entries between are zero.
func (v *Vector[T]) With(i int, t T) *Vector[T] {
	next := &Vector[T]{n: max(v.n, i+1), pages: append([]*[vectorPage]*[vectorPage]T(nil), v.pages...)}
	for top := 0; top<<(2*vectorShift) < next.n; top++ {
		if top == len(next.pages) {
			next.pages = append(next.pages, new([vectorPage]*[vectorPage]T))
		}
	}
	for leaf := (v.n + vectorPage - 1) >> vectorShift; leaf<<vectorShift < next.n; leaf++ {
		next.own(leaf >> vectorShift)[leaf&(vectorPage-1)] = new([vectorPage]T)
	}
	page := next.own(i >> (2 * vectorShift))
	leaf := *page[i>>vectorShift&(vectorPage-1)]
	leaf[i&(vectorPage-1)] = t
	page[i>>vectorShift&(vectorPage-1)] = &leaf
	return next
}

// own makes a page the list's own and returns it.
func (v *Vector[T]) own(top int) *[vectorPage]*[vectorPage]T {
	page := *v.pages[top]
	v.pages[top] = &page
	return &page
}
