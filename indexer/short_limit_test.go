package indexer

import (
	"slices"
	"testing"
)

// A delta of as many operations as there may be is read in its short form too,
// where some of them take several.
func TestShortMostOperations(t *testing.T) {
	x, name := New(Options{}), Source{Endpoint: 1}
	x.Apply(name, &Delta{
		Ops:    []Op{{Kind: OpStore, Root: true, From: 1, N: 1}},
		Blocks: []StoredBlock{{Hash: 7, Key: 70, Bytes: 60, Tokens: 16}},
	})
	d := &Delta{}
	for i := range MaxDeltaOps - 1 {
		d.Ops = append(d.Ops, Op{Kind: OpRemove, Tier: Tier(i % 2), First: uint32(len(d.Hashes)), N: 1})
		d.Hashes = append(d.Hashes, 7)
	}
	d.Ops = append(d.Ops, Op{Kind: OpMove, First: uint32(len(d.Hashes)), N: 3})
	d.Hashes = append(d.Hashes, 7, 8, 7)
	var tails Tails
	b := x.AppendShort(nil, name, &tails, d)
	var got Delta
	if unsure, err := x.DecodeShort(b, name, &tails, &got); err != nil || unsure > 0 {
		t.Fatal(unsure, err)
	}
	if !slices.Equal(got.Ops, d.Ops) || !slices.Equal(got.Hashes, d.Hashes) {
		t.Errorf("read %d operations on %d hashes", len(got.Ops), len(got.Hashes))
	}
	if _, err := x.DecodeShort(x.AppendShort(b, name, &tails, d), name, &tails, &got); err == nil {
		t.Error("twice as many are read")
	}
}
