package flightrecorder

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"runtime/trace"
	"strings"
	"sync/atomic"
	"time"
)

// Names of the files that every record has.
const (
	fileManifest   = "manifest.json"
	fileGoroutines = "goroutines.txt"
	fileTrace      = "trace.out"
)

// manifest describes a record.
type manifest struct {
	Name    string    `json:"name"`
	Process string    `json:"process"`
	At      time.Time `json:"at"`
	Trigger string    `json:"trigger"`
	Detail  string    `json:"detail,omitempty"`
	Files   []string  `json:"files"`
	// Missing has the reason for each file that could not be made.
	Missing map[string]string `json:"missing,omitempty"`
}

type file struct {
	name    string
	content []byte
	err     error
}

// part is a Part of which at most one call runs.
type part struct {
	Part
	running atomic.Bool
}

var (
	errStillRunning = errors.New("its preparation for an earlier record has not ended")
	errPartTime     = fmt.Errorf("not available within %v", partTime)
	errPanicked     = errors.New("its preparation panicked")
	errPartSize     = fmt.Errorf("larger than %d bytes", maxPart)
)

// start makes the part in the background. The result is sent to out, which must have room.
func (p *part) start(ctx context.Context, out chan<- file) {
	if !p.running.CompareAndSwap(false, true) {
		out <- file{name: p.Name, err: errStillRunning}
		return
	}
	go func() {
		f := file{name: p.Name, err: errPanicked}
		defer func() {
			_ = recover() // a record must not end the process
			p.running.Store(false)
			out <- f
		}()
		f.content, f.err = p.Make(ctx)
	}()
}

// archive makes the content of a record: the stacks and a running execution trace first, because
// they change while the other parts are made.
func (r *Recorder) archive(ctx context.Context, rec *Record) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, partTime)
	defer cancel()
	files := []file{{name: fileGoroutines, content: stacks()}, {}}
	if r.trace != nil {
		files[1] = traceFile(r.trace)
	}
	out := make(chan file, len(r.parts))
	for _, p := range r.parts {
		p.start(ctx, out)
	}
	if r.trace == nil {
		files[1] = r.traceNow(ctx)
	}
	got := map[string]file{}
	for len(got) < len(r.parts) && ctx.Err() == nil {
		select {
		case f := <-out:
			got[f.name] = f
		case <-ctx.Done():
		}
	}
	for _, p := range r.parts {
		f, ok := got[p.Name]
		if !ok {
			f = file{name: p.Name, err: errPartTime}
		}
		files = append(files, f)
	}
	return r.pack(rec, files)
}

// traceFile returns the execution trace of the last seconds.
func traceFile(t *trace.FlightRecorder) file {
	var b bytes.Buffer
	_, err := t.WriteTo(&b)
	return file{name: fileTrace, content: b.Bytes(), err: err}
}

// traceNow returns the execution trace of the next second.
func (r *Recorder) traceNow(ctx context.Context) file {
	t := trace.NewFlightRecorder(r.config)
	if err := t.Start(); err != nil {
		return file{name: fileTrace, err: err}
	}
	defer t.Stop()
	end := time.NewTimer(traceAfter)
	defer end.Stop()
	select {
	case <-end.C:
	case <-ctx.Done():
	}
	return traceFile(t)
}

// pack writes the archive.
func (r *Recorder) pack(rec *Record, files []file) ([]byte, error) {
	m := manifest{Name: rec.Name, Process: r.o.Name, At: rec.At.UTC(), Trigger: rec.Trigger, Detail: rec.Detail, Missing: map[string]string{}}
	var secrets [][]byte
	if r.o.Secrets != nil {
		secrets = r.o.Secrets()
	}
	for i := range files {
		f := &files[i]
		if f.err == nil && len(f.content) > maxPart {
			f.err = errPartSize
		}
		if f.err != nil {
			m.Missing[f.name] = string(scrub([]byte(f.err.Error()), secrets))
			continue
		}
		if f.name != fileTrace { // a trace has no strings of the process's data, and a replacement would break it
			f.content = scrub(f.content, secrets)
		}
		m.Files = append(m.Files, f.name)
	}
	head, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	t := tar.NewWriter(z)
	for _, f := range append([]file{{name: fileManifest, content: scrub(append(head, '\n'), secrets)}}, files...) {
		if f.err != nil {
			continue
		}
		h := tar.Header{Name: strings.TrimSuffix(rec.Name, suffix) + "/" + f.name, Mode: 0o600, Size: int64(len(f.content)), ModTime: rec.At}
		if err := t.WriteHeader(&h); err != nil {
			return nil, err
		}
		if _, err := t.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(t.Close(), z.Close()); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// leastSecret is the length in bytes from which a secret is removed from text. Shorter ones are
// equal to ordinary words.
const leastSecret = 6

// scrub replaces secrets in text.
func scrub(text []byte, secrets [][]byte) []byte {
	for _, s := range secrets {
		if len(s) >= leastSecret {
			text = bytes.ReplaceAll(text, s, []byte("[removed]"))
		}
	}
	return text
}

// maxStacks limits the memory for stacks of goroutines. The process is stopped while they are
// written.
const maxStacks = 4 << 20

// stacks returns the stacks of all goroutines without arguments and labels. Arguments may have
// words of keys.
func stacks() []byte {
	buf := make([]byte, 64<<10)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) || len(buf) >= maxStacks {
			return withoutArguments(buf[:n])
		}
		buf = make([]byte, 4*len(buf))
	}
}

// withoutArguments removes the arguments of functions and the labels of goroutines from stacks.
func withoutArguments(stacks []byte) []byte {
	out := make([]byte, 0, len(stacks))
	for line := range bytes.Lines(stacks) {
		end := len(bytes.TrimRight(line, "\n"))
		switch {
		case bytes.HasPrefix(line, []byte("goroutine ")):
			end = bytes.IndexByte(line, ']') + 1
		case bytes.HasPrefix(line, []byte("\t")), bytes.HasPrefix(line, []byte("created by ")):
		default:
			if at := bytes.LastIndexByte(line, '('); at >= 0 {
				end = at
			}
		}
		out = append(append(out, line[:end]...), '\n')
	}
	return out
}
