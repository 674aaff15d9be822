package indexer_test

import (
	"fmt"

	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/indexer/block"
)

// An engine holds the first two blocks of a prompt of three.
func Example() {
	h := block.NewHasher(block.Seed{1})
	x := indexer.New(indexer.Options{Hasher: h})
	prompt := []byte("You are a helpful assistant. What is a prefix?")
	root := h.Root(block.Scope{Space: block.SpaceText, Model: "llama"})
	first := h.Child(root, prompt[:16])
	second := h.Child(first, prompt[16:32])
	x.Apply(block.Source{Endpoint: 3}, &block.Delta{
		Ops: []block.Op{{Kind: block.OpStore, Root: true, From: root, N: 2}},
		Blocks: []block.StoredBlock{
			{Hash: 101, Key: first, Bytes: 16, Tokens: 4},
			{Hash: 102, Key: second, Bytes: 16, Tokens: 4},
		},
	})

	runs := make([]block.Run, 2)
	x.Match(block.Query{Root: root, Bytes: prompt}, []block.EndpointID{3, 4}, runs)
	for _, r := range runs {
		fmt.Println(r.Blocks, "blocks,", r.Total(), "tokens")
	}
	// Output:
	// 2 blocks, 8 tokens
	// 0 blocks, 0 tokens
}
