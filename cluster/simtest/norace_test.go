//go:build !race

package simtest

const defaultSeeds = 300
