package wire

import (
	"slices"
	"testing"

	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/indexer/block"
)

// A delta with the maximum number of operations can be read in its short form too, in which some
// operations become several.
func TestShortMostOperations(t *testing.T) {
	x, name := indexer.New(indexer.Options{}), block.Source{Endpoint: 1}
	x.Apply(name, &block.Delta{
		Ops:    []block.Op{{Kind: block.OpStore, Root: true, From: 1, N: 1}},
		Blocks: []block.StoredBlock{{Hash: 7, Key: 70, Bytes: 60, Tokens: 16}},
	})
	d := &block.Delta{}
	for i := range MaxDeltaOps - 1 {
		d.Ops = append(d.Ops, block.Op{Kind: block.OpRemove, Tier: block.Tier(i % 2), First: uint32(len(d.Hashes)), N: 1})
		d.Hashes = append(d.Hashes, 7)
	}
	d.Ops = append(d.Ops, block.Op{Kind: block.OpMove, First: uint32(len(d.Hashes)), N: 3})
	d.Hashes = append(d.Hashes, 7, 8, 7)
	var tails Tails
	b := AppendShort(nil, x, name, &tails, d)
	var got block.Delta
	if unsure, err := DecodeShort(b, x, name, &tails, &got); err != nil || unsure > 0 {
		t.Fatal(unsure, err)
	}
	if !slices.Equal(got.Ops, d.Ops) || !slices.Equal(got.Hashes, d.Hashes) {
		t.Errorf("read %d operations on %d hashes", len(got.Ops), len(got.Hashes))
	}
	if _, err := DecodeShort(AppendShort(b, x, name, &tails, d), x, name, &tails, &got); err == nil {
		t.Error("twice as many are read")
	}
}
