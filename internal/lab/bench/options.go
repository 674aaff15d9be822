package bench

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Mode is the way in which the played proxy sends bodies.
type Mode string

// The modes of the two configurations that the project ships.
const (
	// FullDuplex sends both bodies in chunks and receives them in chunks, as conformant gateways
	// configure.
	FullDuplex Mode = "full_duplex"
	// Buffered sends the request body in one message. It sends the response body only if the picker
	// requests it.
	Buffered Mode = "buffered"
)

// Modes lists every mode.
var Modes = []Mode{FullDuplex, Buffered}

// Defaults of Options, and the smallest body that holds a chat.
const (
	defaultChunk   = 16 << 10
	largestChunk   = 64 << 10
	smallestBody   = 512
	defaultFailure = 100
)

// Options configure a load. Target is required; the fields name the defaults of zero values.
type Options struct {
	// Target is the host:port of the picker's external-processing port.
	Target string

	// TLS encrypts the connections; nil is plaintext. SelfSigned returns one
	// for pickers with a certificate of their own.
	TLS *tls.Config

	// Mode is how bodies are sent; FullDuplex.
	Mode Mode

	// BodySize is the exact size in bytes of each request body; 1 KiB, and at
	// least 512.
	BodySize int

	// Chunk is the size in bytes of body chunks in full duplex; 16 KiB, and at
	// most 64 KiB.
	Chunk int

	// ResponseSize is the size in bytes of each response body, where the
	// picker sees it; 1 KiB.
	ResponseSize int

	// ResponseChunk is the size in bytes of the chunks of a streamed response body; Chunk.
	ResponseChunk int

	// ResponsePace is the time before each chunk of a response body; none.
	ResponsePace time.Duration

	// NoCachedTokens leaves the prefix cache out of the usage that ends a response, as
	// vLLM does by default.
	NoCachedTokens bool

	// Conversations is how many different prompts share most of their text
	// with earlier requests; 64.
	Conversations int

	// Shared is the share of a body, 0 to 1, with which all requests of a conversation begin; 0.9.
	// A quarter of it is common to all conversations.
	Shared float64

	// Model is the model named in the bodies; "model".
	Model string

	// Connections is the number of HTTP/2 connections; 2.
	Connections int

	// Concurrency is the number of streams open at the same time; 16.
	Concurrency int

	// Rate is requests per second over all streams. Latencies then count from
	// the moment a request was due, so that a slow picker cannot hide. Zero
	// sends the next request when one is done.
	Rate float64

	// Requests and Duration bound the measured part; the first to be reached
	// ends it. Both zero mean 10 s.
	Requests int
	Duration time.Duration

	// Warmup is the number of requests before the measured part; 0.
	Warmup int

	// Timeout bounds each request and the wait for a connection; 30 s.
	Timeout time.Duration

	// MaxFailures ends the run at this number of failed requests; 100.
	MaxFailures int

	// PID is the picker's process, whose CPU time and memory are read from
	// /proc. Zero leaves them out of the report.
	PID int

	// Endpoints is the number of endpoints in the picker's pool: it names the
	// rows and changes nothing.
	Endpoints int
}

// SelfSigned returns a configuration that accepts any certificate: for
// measuring a picker on the same machine, not for traffic.
func SelfSigned() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}
}

// Errors of Run.
var (
	errTarget  = errors.New("bench: options: a target is required")
	errFailing = errors.New("bench: too many failed requests")
)

func (o Options) withDefaults() (Options, error) {
	setDefault(&o.Mode, FullDuplex)
	setDefault(&o.BodySize, 1<<10)
	setDefault(&o.Chunk, defaultChunk)
	setDefault(&o.ResponseSize, 1<<10)
	setDefault(&o.Conversations, 64)
	setDefault(&o.Shared, 0.9)
	setDefault(&o.Model, "model")
	setDefault(&o.Connections, 2)
	setDefault(&o.Concurrency, 16)
	setDefault(&o.Timeout, 30*time.Second)
	setDefault(&o.MaxFailures, defaultFailure)
	if o.Requests == 0 && o.Duration == 0 {
		o.Duration = 10 * time.Second
	}
	return o, o.validate()
}

func (o *Options) responseChunk() int { return cmp.Or(o.ResponseChunk, o.Chunk) }

func (o Options) validate() error {
	switch {
	case o.Target == "":
		return errTarget
	case !slices.Contains(Modes, o.Mode):
		return fmt.Errorf("bench: options: mode %q: want one of %v", o.Mode, Modes)
	case o.BodySize < smallestBody:
		return fmt.Errorf("bench: options: body size %d: want at least %d", o.BodySize, smallestBody)
	case o.Chunk < 1 || o.Chunk > largestChunk:
		return fmt.Errorf("bench: options: chunk %d: want 1 to %d", o.Chunk, largestChunk)
	case o.Shared < 0 || o.Shared > 1:
		return fmt.Errorf("bench: options: shared part %v: want 0 to 1", o.Shared)
	case o.Rate < 0, o.Requests < 0, o.Duration < 0, o.Warmup < 0, o.Timeout < 0, o.ResponseSize < 0, o.ResponseChunk < 0, o.ResponsePace < 0,
		o.Connections < 0, o.Concurrency < 0, o.Conversations < 0, o.MaxFailures < 0, o.PID < 0, o.Endpoints < 0:
		return errors.New("bench: options: a number is negative")
	}
	return nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
