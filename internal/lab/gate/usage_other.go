//go:build !linux

package gate

import (
	"errors"
	"time"
)

var errLinux = errors.New("gate: measurements need Linux")

func processCPU(int) (time.Duration, error) { return 0, errLinux }

func threadCPU() time.Duration { return 0 }

func WakeUps(int) (int, error) { return 0, errLinux }

func memory(int, string) (float64, error) { return 0, errLinux }
