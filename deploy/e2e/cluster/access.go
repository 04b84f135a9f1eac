package cluster

import (
	"context"
	"fmt"
	"os"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Access is a way into a cluster with an identity.
type Access struct {
	// Server is the URL of kube-apiserver, or of a proxy in front of it.
	Server string
	// CA is the authority, in PEM, that has signed the server's certificate.
	CA []byte
	// Token is the bearer token. An Access without one is anonymous.
	Token string
}

// Kubeconfig returns the access as a kubeconfig file.
func (a Access) Kubeconfig() ([]byte, error) {
	const name = "e2e"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: a.Server, CertificateAuthorityData: a.CA}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: a.Token}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	b, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("write a kubeconfig: %w", err)
	}
	return b, nil
}

// WriteFile writes the kubeconfig to a file.
func (a Access) WriteFile(path string) error {
	b, err := a.Kubeconfig()
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o600)
}

// Config returns the access as a configuration of clients, without a rate limit.
func (a Access) Config() *rest.Config {
	return &rest.Config{Host: a.Server, BearerToken: a.Token, TLSClientConfig: rest.TLSClientConfig{CAData: a.CA}, QPS: -1, UserAgent: "e2e",
		WarningHandler: rest.NoWarnings{}}
}

// Admin returns the access of an administrator with all rights.
func (c *Cluster) Admin() Access { return c.access(adminToken) }

// Kubeconfig returns the path of the administrator's kubeconfig.
func (c *Cluster) Kubeconfig() string { return c.path("kubeconfig") }

// ServiceAccount returns the access of a ServiceAccount, which it creates if needed. RBAC grants its rights.
func (c *Cluster) ServiceAccount(ctx context.Context, namespace, name string) (Access, error) {
	if err := c.ensureServiceAccount(ctx, namespace, name); err != nil {
		return Access{}, err
	}
	const day = int64(24 * 60 * 60)
	expiry := day
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &expiry}}
	token, err := c.typed.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return Access{}, fmt.Errorf("request a token of ServiceAccount %s/%s: %w", namespace, name, err)
	}
	return c.access(token.Status.Token), nil
}

func (c *Cluster) access(token string) Access {
	return Access{Server: "https://" + c.address, CA: c.authority.pem, Token: token}
}
