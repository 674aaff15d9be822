package main

import "github.com/grapevine-epp/grapevine/picker/epp"

// version is set by the linker (see Makefile).
var version = "dev"

func main() { epp.Main(epp.WithVersion(version)) }
