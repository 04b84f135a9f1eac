package input

import (
	"context"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/cli"
)

// Names returns the names of the objects of a resource in a cluster for completions, with the form NAME.NAMESPACE for
// Pods and Services. It is empty without a cluster.
func (f *Cluster) Names(c *cobra.Command, resource string) []string {
	config, err := f.Connection()
	if err != nil {
		return nil
	}
	config.Timeout = cli.CompletionTimeout
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil
	}
	ctx := c.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	const most = 1000
	list, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: resource}).List(ctx, metav1.ListOptions{Limit: most})
	if err != nil {
		return nil
	}
	var names []string
	for i := range list.Items {
		name := list.Items[i].Name
		if ns := list.Items[i].Namespace; ns != "" {
			name += "." + ns
		}
		names = append(names, name)
	}
	return names
}
