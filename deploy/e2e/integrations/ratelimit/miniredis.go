//go:build ignore

// Command miniredis serves the Redis protocol at an address. deploy/tools/module.sh builds it inside the module of the
// rate limit service, whose own tests count in the same library.
package main

import (
	"fmt"
	"os"

	"github.com/alicebob/miniredis/v2"
)

func main() {
	if err := miniredis.NewMiniRedis().StartAddr(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	select {}
}
