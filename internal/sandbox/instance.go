package sandbox

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// Functions of the interface, version 1.
const (
	fnAlloc  = "grapevine_v1_alloc"
	fnFacts  = "grapevine_v1_facts"
	fnStart  = "grapevine_v1_start"
	fnScore  = "grapevine_v1_score"
	fnFilter = "grapevine_v1_filter"
)

const (
	maxFacts = 128
	maxText  = 64 << 10 // of a list of facts, or of a message
	slot     = 8        // bytes of a fact, and of a score
)

// instance is a running module. It is used by one call at a time.
type instance struct {
	module  api.Module
	memory  api.Memory
	steps   api.MutableGlobal
	alloc   api.Function
	call    api.Function
	context context.Context
	output  []byte
	stack   [4]uint64

	base, size uint32 // the area for facts and results
	writer     Writer
}

// start returns a new instance that has accepted its configuration.
func (p *program) start(fn, config string) (*instance, error) {
	i := &instance{}
	i.context = context.WithValue(context.Background(), outputKey{}, &i.output)
	var err error
	if i.module, err = p.runtime.InstantiateModule(i.context, p.compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions()); err != nil {
		return nil, fmt.Errorf("it does not start: %s", firstLine(err))
	}
	if err := i.open(p, fn, config); err != nil {
		i.close()
		return nil, err
	}
	return i, nil
}

func (i *instance) open(p *program, fn, config string) error {
	var ok bool
	if i.steps, ok = i.module.ExportedGlobal(stepsExport).(api.MutableGlobal); !ok {
		return errors.New("it has no step counter")
	}
	if i.memory = i.module.Memory(); i.memory == nil {
		return errors.New("it has no memory")
	}
	i.alloc, i.call = i.module.ExportedFunction(fnAlloc), i.module.ExportedFunction(fn)
	if p.exports("_initialize") {
		if _, err := i.module.ExportedFunction("_initialize").Call(i.context); err != nil {
			return fmt.Errorf("it does not start: %s", i.cause(err))
		}
	}
	if !p.exports(fnStart) {
		if config != "" {
			return fmt.Errorf("it takes no config: it does not export %s", fnStart)
		}
		return nil
	}
	if err := i.reserve(uint32(len(config) + slot)); err != nil {
		return err
	}
	i.memory.WriteString(i.base, config)
	result, err := i.module.ExportedFunction(fnStart).Call(i.context, uint64(i.base), uint64(len(config)))
	if err != nil {
		return fmt.Errorf("it does not start: %s", i.cause(err))
	}
	if at := uint32(result[0]); at != 0 {
		text, err := i.text(at)
		if err != nil {
			return err
		}
		return &ConfigError{text}
	}
	return nil
}

// ConfigError is a configuration that a module refuses.
type ConfigError struct{ Message string }

// Error implements error.
func (e *ConfigError) Error() string { return "it refuses its config: " + e.Message }

func (i *instance) close() {
	if i.module != nil {
		_ = i.module.Close(context.Background()) // nothing of an instance can fail to close
	}
}

// cause describes a failed call: the step limit, or the trap and the module's output.
func (i *instance) cause(err error) string {
	if i.steps != nil && int64(i.steps.Get()) < 0 {
		return "it needs more instructions than its limit"
	}
	text := firstLine(err)
	if said := printable(i.output); said != "" {
		text += ": " + said
	}
	return text
}

// facts returns the names of the facts that the module reads.
func (i *instance) facts() ([]string, error) {
	result, err := i.module.ExportedFunction(fnFacts).Call(i.context)
	if err != nil {
		return nil, fmt.Errorf("its function %s fails: %s", fnFacts, i.cause(err))
	}
	text, err := i.text(uint32(result[0]))
	if err != nil {
		return nil, err
	}
	names := strings.Fields(text)
	if len(names) > maxFacts {
		return nil, fmt.Errorf("it reads %d facts, the limit is %d", len(names), maxFacts)
	}
	return names, nil
}

// text reads a text that ends with a zero byte.
func (i *instance) text(at uint32) (string, error) {
	size := i.memory.Size()
	if at >= size {
		return "", fmt.Errorf("it returns a text outside of its memory, at %d", at)
	}
	data, _ := i.memory.Read(at, min(size-at, maxText))
	n := bytes.IndexByte(data, 0)
	if n < 0 {
		return "", fmt.Errorf("it returns a text that no zero byte ends, at %d", at)
	}
	return strings.ToValidUTF8(string(data[:n]), "?"), nil
}

// reserve obtains an area of at least size bytes.
func (i *instance) reserve(size uint32) error {
	if size <= i.size {
		return nil
	}
	size += size/2 + slot
	i.stack[0] = uint64(size)
	if err := i.alloc.CallWithStack(i.context, i.stack[:1]); err != nil {
		return fmt.Errorf("its function %s fails: %w", fnAlloc, err)
	}
	base := uint32(i.stack[0])
	if base == 0 || base%slot != 0 || uint64(base)+uint64(size) > uint64(i.memory.Size()) {
		return fmt.Errorf("its function %s returns an area at %d of %d bytes, which is not aligned to 8 or not in its memory", fnAlloc, base, size)
	}
	i.base, i.size = base, size
	return nil
}

// Writer writes the facts of the request, or of one endpoint, in the order of [Module.Facts].
type Writer struct {
	area []byte // of the instance
	base uint32
	at   int // of the next fact
	end  int // of texts: the next one begins here
}

// Number writes a number.
func (w *Writer) Number(value float64) {
	if w.at+slot <= len(w.area) {
		binary.LittleEndian.PutUint64(w.area[w.at:], math.Float64bits(value))
	}
	w.at += slot
}

// Text writes a text: its address and its length.
func (w *Writer) Text(s string) {
	if w.at+slot <= len(w.area) {
		binary.LittleEndian.PutUint32(w.area[w.at:], w.base+uint32(w.end))
		binary.LittleEndian.PutUint32(w.area[w.at+4:], uint32(len(s)))
	}
	w.at += slot
	if w.end+len(s) <= len(w.area) {
		copy(w.area[w.end:], s)
	}
	w.end += len(s)
}

// Source writes the facts of a decision.
type Source interface {
	WriteRequest(w *Writer)
	WriteEndpoint(k int, w *Writer)
}

// write fills the area with the facts of n endpoints, and space for n results of a width.
func (i *instance) write(n, width int, shape *shape, s Source) (results uint32, err error) {
	rows := shape.request * slot
	out := rows + n*shape.endpoint*slot
	texts := out + (n*width+slot-1)/slot*slot
	need := texts
	for {
		if err := i.reserve(uint32(need)); err != nil {
			return 0, err
		}
		area, ok := i.memory.Read(i.base, i.size)
		if !ok {
			return 0, errors.New("its memory has become smaller")
		}
		w := &i.writer
		*w = Writer{area: area, base: i.base, end: texts}
		s.WriteRequest(w)
		for k := range n {
			s.WriteEndpoint(k, w)
		}
		if w.end <= len(area) {
			for k := out; k < texts; k++ {
				area[k] = 0xff // NaN as a score, and no valid verdict
			}
			return i.base + uint32(out), nil
		}
		need = w.end
	}
}

// run calls the module with n endpoints. It returns the results, valid until the next call.
func (i *instance) run(n, width int, m *Module, s Source) ([]byte, Reason, error) {
	i.output = i.output[:0]
	i.steps.Set(uint64(m.limit))
	results, err := i.write(n, width, &m.shape, s)
	if err != nil {
		return nil, i.reason(), err
	}
	i.stack = [4]uint64{uint64(i.base), uint64(i.base) + uint64(m.shape.request*slot), uint64(n), uint64(results)}
	if err := i.call.CallWithStack(i.context, i.stack[:]); err != nil {
		return nil, i.reason(), err
	}
	if code := uint32(i.stack[0]); code != 0 {
		return nil, Refused, fmt.Errorf("it returned %d", int32(code))
	}
	data, ok := i.memory.Read(results, uint32(n*width))
	if !ok {
		return nil, Result, errors.New("its memory has become smaller")
	}
	return data, OK, nil
}

func (i *instance) reason() Reason {
	if int64(i.steps.Get()) < 0 {
		return Steps
	}
	return Trap
}
