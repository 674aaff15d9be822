package lockfree

const (
	vectorShift = 5
	vectorPage  = 1 << vectorShift
)

// Vector is an immutable list. With returns a modified list that shares all pages except those
// around the change, so a change costs about the same in a long list as in a short one. A Vector is
// a consistent snapshot. The zero value is empty.
type Vector[T any] struct {
	n     int
	pages []*[vectorPage]*[vectorPage]T
}

// Len returns the number of entries.
func (v *Vector[T]) Len() int { return v.n }

// At returns entry i, which must not be changed. i must be below Len.
func (v *Vector[T]) At(i int) *T {
	return &v.pages[i>>(2*vectorShift)][i>>vectorShift&(vectorPage-1)][i&(vectorPage-1)]
}

// With returns a list with t at index i, extended with zero entries if needed.
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

// own returns a page that only this list uses, copying it if needed.
func (v *Vector[T]) own(top int) *[vectorPage]*[vectorPage]T {
	page := *v.pages[top]
	v.pages[top] = &page
	return &page
}
