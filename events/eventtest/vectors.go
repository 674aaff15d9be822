package eventtest

import (
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"testing"
)

//go:embed vectors.json
var text []byte

// Vectors are batches and frames as engines publish them.
type Vectors struct {
	Frames   json.RawMessage `json:"frames"`
	Payloads []Payload       `json:"event_payloads"`
}

// Payload is one batch: its bytes and its content.
type Payload struct {
	Name    string          `json:"name"`
	Hex     string          `json:"hex"`
	Decoded json.RawMessage `json:"decoded"`
}

// Bytes returns the batch as published.
func (p Payload) Bytes(tb testing.TB) []byte { return Unhex(tb, p.Hex) }

// Load returns the recorded vectors.
func Load(tb testing.TB) Vectors {
	tb.Helper()
	var v Vectors
	if err := json.Unmarshal(text, &v); err != nil {
		tb.Fatal(err)
	}
	return v
}

// Unhex returns the bytes that s spells.
func Unhex(tb testing.TB, s string) []byte {
	tb.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}
