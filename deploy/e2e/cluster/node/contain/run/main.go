package main

import (
	"fmt"
	"os"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/node/contain"
)

func main() {
	fmt.Fprintln(os.Stderr, contain.Run())
	os.Exit(126)
}
