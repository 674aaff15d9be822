package clustertest

import "github.com/grapevine-epp/grapevine/cluster"

// Pages returns a dump of given pages.
func Pages(pages [][]byte) cluster.Dump { return &dump{pages} }

type dump struct{ pages [][]byte }

// Next implements cluster.Dump.
func (d *dump) Next() (p []byte, err error) {
	if len(d.pages) > 0 {
		p, d.pages = d.pages[0], d.pages[1:]
	}
	return p, nil
}

// Close implements cluster.Dump.
func (*dump) Close() {}

// Stage is a cluster.Stage made of functions.
type Stage struct {
	Add  func(page []byte) error
	Take func() error
}

// Page implements cluster.Stage.
func (s *Stage) Page(p []byte) error { return s.Add(p) }

// Commit implements cluster.Stage.
func (s *Stage) Commit() error { return s.Take() }

// Discard implements cluster.Stage.
func (*Stage) Discard() {}
