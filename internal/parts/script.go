package parts

import (
	"bufio"
	"encoding/json"
	"io"
	"os/exec"
	"strings"
	"sync"
)

// Script is a running Python program that a test talks to in lines: a
// reference implementation, or a peer made of other people's libraries. One
// goroutine may use it at a time.
type Script struct {
	tb   TB
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	stop func()
}

// Start runs the installed Python with args (a program's path and its arguments, or "-c" and a
// program) in UTC until the test ends. Its standard error is written to the test's log.
func Start(tb TB, args ...string) *Script {
	tb.Helper()
	s := &Script{tb: tb, name: args[0], cmd: exec.Command(Python(tb), args...)}
	s.cmd.Env = append(s.cmd.Environ(), "TZ=UTC", "PYTHONDONTWRITEBYTECODE=1")
	s.cmd.Stderr = logWriter{tb, s.name}
	in, err := s.cmd.StdinPipe()
	if err != nil {
		tb.Fatalf("%s: %v", s.name, err)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		tb.Fatalf("%s: %v", s.name, err)
	}
	if err := s.cmd.Start(); err != nil {
		tb.Fatalf("%s: %v", s.name, err)
	}
	s.in, s.out = in, bufio.NewReaderSize(out, 1<<20)
	s.stop = sync.OnceFunc(func() {
		_ = in.Close()
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait() // killed on purpose
	})
	tb.Cleanup(s.stop)
	return s
}

// Stop kills the program and waits until it has exited. A second call has no effect.
func (s *Script) Stop() { s.stop() }

// Line waits for the program's next line, without its end, and ends the test if there is none.
func (s *Script) Line() string {
	s.tb.Helper()
	line, err := s.out.ReadString('\n')
	if err != nil {
		s.tb.Fatalf("%s gave no answer: %v", s.name, err)
	}
	return strings.TrimRight(line, "\r\n")
}

// Send sends one line to the program.
func (s *Script) Send(line string) {
	s.tb.Helper()
	if _, err := io.WriteString(s.in, line+"\n"); err != nil {
		s.tb.Fatalf("%s: %v", s.name, err)
	}
}

// Ask sends a request as one line of JSON and decodes the response line into answer.
func (s *Script) Ask(request, answer any) {
	s.tb.Helper()
	data, err := json.Marshal(request)
	if err != nil {
		s.tb.Fatalf("%s: %v", s.name, err)
	}
	s.Send(string(data))
	line := s.Line()
	if err := json.Unmarshal([]byte(line), answer); err != nil {
		s.tb.Fatalf("%s: %v: %.1000s", s.name, err, line)
	}
}

// logWriter copies a program's standard error to a test's log.
type logWriter struct {
	tb   TB
	name string
}

func (w logWriter) Write(p []byte) (int, error) {
	w.tb.Logf("%s: %s", w.name, p)
	return len(p), nil
}
