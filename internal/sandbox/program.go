package sandbox

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"weak"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

const (
	pageSize   = 65_536
	startSteps = 1 << 27 // of an instance's start: about a tenth of a second

	// MaxModule is the largest size of a module in bytes.
	MaxModule = 32 << 20
)

// program is a compiled module. It is safe for concurrent use.
type program struct {
	runtime  wazero.Runtime
	compiled wazero.CompiledModule
}

// programKey identifies a program: equal modules with equal limits share one.
type programKey struct {
	module [sha256.Size]byte
	pages  uint32
}

// programs finds programs in use, so that reading a configuration again compiles nothing.
var programs struct {
	sync.Mutex
	byKey map[programKey]weak.Pointer[program]
}

// compile returns the program of a module whose memory has a limit.
func compile(module []byte, pages uint32) (*program, error) {
	key := programKey{sha256.Sum256(module), pages}
	if p := findProgram(key); p != nil {
		return p, nil
	}
	p, err := newProgram(module, pages)
	if err != nil {
		return nil, err
	}
	programs.Lock()
	defer programs.Unlock()
	if programs.byKey == nil {
		programs.byKey = map[programKey]weak.Pointer[program]{}
	}
	for k, old := range programs.byKey {
		if old.Value() == nil {
			delete(programs.byKey, k)
		}
	}
	programs.byKey[key] = weak.Make(p)
	return p, nil
}

func findProgram(key programKey) *program {
	programs.Lock()
	defer programs.Unlock()
	return programs.byKey[key].Value()
}

func newProgram(module []byte, pages uint32) (*program, error) {
	m, err := meter(module, startSteps)
	if err != nil {
		return nil, err
	}
	if m.pages > pages {
		return nil, fmt.Errorf("it starts with %d KiB of memory, the limit is %d KiB: raise memoryLimit", m.pages*64, pages*64)
	}
	ctx := context.Background()
	runtime := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithMemoryLimitPages(pages))
	compiled, err := runtime.CompileModule(ctx, m.code)
	if err != nil {
		return nil, fmt.Errorf("it is not valid: %s", firstLine(err))
	}
	p := &program{runtime: runtime, compiled: compiled}
	return p, p.link(ctx)
}

// link provides the imports of the module, or names the ones that do not exist.
func (p *program) link(ctx context.Context) error {
	if len(p.compiled.ImportedMemories()) > 0 {
		return errors.New("it imports a memory: it has to export its own")
	}
	host := p.runtime.NewHostModuleBuilder(wasiName)
	seen := map[string]bool{}
	for _, f := range p.compiled.ImportedFunctions() {
		module, name, _ := f.Import()
		if module != wasiName {
			return fmt.Errorf("it imports %s.%s: plugins may import functions of %s only", module, name, wasiName)
		}
		if !seen[name] {
			seen[name] = true
			host.NewFunctionBuilder().WithGoModuleFunction(wasiFunction(name, f.ParamTypes(), f.ResultTypes()), f.ParamTypes(), f.ResultTypes()).Export(name)
		}
	}
	if len(seen) == 0 {
		return nil
	}
	_, err := host.Instantiate(ctx)
	return err
}

// requires returns an error unless the module exports a function with these types.
func (p *program) requires(name string, params, results int) error {
	f, ok := p.compiled.ExportedFunctions()[name]
	switch {
	case !ok:
		return fmt.Errorf("it does not export the function %s; it exports %s", name, p.exported())
	case !isI32(f.ParamTypes(), params) || !isI32(f.ResultTypes(), results):
		return fmt.Errorf("its function %s has %s parameters and %s results, not %d and %d of type i32", name,
			types(f.ParamTypes()), types(f.ResultTypes()), params, results)
	}
	return nil
}

func (p *program) exports(name string) bool {
	_, ok := p.compiled.ExportedFunctions()[name]
	return ok
}

// exported lists the exported functions for messages.
func (p *program) exported() string {
	var names []string
	for name := range p.compiled.ExportedFunctions() {
		names = append(names, name)
	}
	if len(names) == 0 {
		return "none"
	}
	slices.Sort(names)
	return strings.Join(names[:min(len(names), 10)], ", ")
}

func isI32(list []api.ValueType, n int) bool {
	return len(list) == n && !slices.ContainsFunc(list, func(t api.ValueType) bool { return t != api.ValueTypeI32 })
}

func types(list []api.ValueType) string {
	names := make([]string, len(list))
	for i, t := range list {
		names[i] = api.ValueTypeName(t)
	}
	return "(" + strings.Join(names, ", ") + ")"
}

// firstLine returns the first line of an error: traces of the module's stack follow it.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line[:min(len(line), 300)]
}
