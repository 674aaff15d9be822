package prompt

// IsTokenBoundary reports whether a token always ends at byte pos of a rendered prompt, regardless
// of the surrounding text.
func (m *Model) IsTokenBoundary(rendered []byte, pos int) bool {
	return m.vocab.IsTokenBoundary(rendered, pos)
}

// Aligned returns how many consecutive blocks between ends, from the first one, hold size tokens of
// the rendered prompt each. See vocab.Vocab.Aligned.
func (m *Model) Aligned(rendered []byte, ends []int32, size int) int {
	return m.vocab.Aligned(rendered, ends, size)
}
