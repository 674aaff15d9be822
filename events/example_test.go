package events_test

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/grapevine-epp/grapevine/events"
	"github.com/grapevine-epp/grapevine/events/zmtp"
	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/indexer/block"
)

// An engine reports the store of a block of four tokens, and the index has it.
func Example() {
	engine, err := zmtp.ListenPub("tcp://127.0.0.1:0", zmtp.PubOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer engine.Close()

	hasher := block.NewHasher(block.Seed{1})
	index := indexer.New(indexer.Options{Hasher: hasher})
	manager := events.Open(events.Options{Index: index, Hasher: hasher})
	defer manager.Close()
	src := block.Source{Endpoint: 1}
	manager.Set([]events.EndpointSource{{
		ID: src.Endpoint, Name: "10.0.0.1:8000", Model: &events.Model{Name: "llama", Unit: 4},
		Streams: []events.Stream{{Events: "tcp://" + engine.Addr().String()}},
	}})
	for engine.Subscribers() == 0 {
		time.Sleep(time.Millisecond)
	}

	batch := "\x93\xcb\x41\xd9\x00\x00\x00\x00\x00\x00\x91" + // time, one event
		"\x95\xabBlockStored\x91\x07\xc0\x94\x01\x02\x03\x04\x04" + // hash 7, no parent, four tokens
		"\x00" // rank
	if err := engine.Send(nil, binary.BigEndian.AppendUint64(nil, 0), []byte(batch)); err != nil {
		fmt.Println(err)
		return
	}
	for manager.State(src.Endpoint).String() != "exact" {
		time.Sleep(time.Millisecond)
	}

	prompt := []byte{1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0}
	root := hasher.Root(block.Scope{Space: block.SpaceTokens, Model: "llama"})
	runs := make([]block.Run, 1)
	index.Match(block.Query{Root: root, Bytes: prompt}, []block.EndpointID{src.Endpoint}, runs)
	fmt.Println(manager.State(src.Endpoint), runs[0].Total(), "tokens")
	// Output: exact 4 tokens
}
