//go:build ignore

// Command mockoidc is an identity provider that logs in the same user each time: ADDRESS CLIENT SECRET.
// deploy/tools/module.sh builds it inside the module of oauth2-proxy, whose own tests use the same library.
package main

import (
	"fmt"
	"net"
	"os"

	"github.com/oauth2-proxy/mockoidc"
)

func main() {
	if err := serve(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	select {}
}

func serve(address, client, secret string) error {
	provider, err := mockoidc.NewServer(nil)
	if err != nil {
		return err
	}
	provider.ClientID, provider.ClientSecret = client, secret
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return provider.Start(l, nil)
}
