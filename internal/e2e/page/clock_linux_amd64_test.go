//go:build page

package page

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// moveClock moves the wall clock that a running process sees. Go reads the time in the kernel's vDSO,
// whose code this function replaces in that process: by the system call, plus seconds for
// CLOCK_REALTIME. The monotonic clock stays.
func moveClock(t *testing.T, pid int, ahead time.Duration) {
	t.Helper()
	code := []byte{
		0xb8, 228, 0, 0, 0, // mov eax, SYS_clock_gettime
		0x0f, 0x05, // syscall
		0x85, 0xff, // test edi, edi: CLOCK_REALTIME is 0
		0x75, 0x07, // jne over the addition
		0x48, 0x81, 0x06, // add qword [rsi], seconds
	}
	code = binary.LittleEndian.AppendUint32(code, uint32(int32(ahead/time.Second)))
	code = append(code, 0xc3) // ret
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	var from, to int64
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(strings.TrimSpace(line), "[vdso]") {
			if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err != nil {
				t.Fatal(err)
			}
		}
	}
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	image := make([]byte, to-from)
	if _, err := mem.ReadAt(image, from); err != nil {
		t.Fatal(err)
	}
	vdso, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := vdso.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" {
			if _, err := mem.WriteAt(code, from+int64(s.Value)); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatal("the vDSO has no __vdso_clock_gettime")
}
