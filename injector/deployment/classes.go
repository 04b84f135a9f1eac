package deployment

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// Class is a GatewayClass.
type Class struct {
	Name, Controller, Description string
}

// Classes returns those of this control plane. defaults is the name of the one that users name first.
func Classes(defaults string) []Class {
	return []Class{
		{defaults, ControllerName, "The default Istio GatewayClass"},
		{"istiod-lite", ControllerName, "Gateways that istiod-lite deploys and configures"},
		{"istio-remote", names.UnmanagedGatewayController, "Remote to this cluster. Does not deploy or affect configuration."},
	}
}

// keepClasses creates the classes that are missing. One that is there stays as it is. An API server that has no such
// kind may have it later.
func (c *Controller) keepClasses(ctx context.Context) {
	c.mu.Lock()
	noticed := c.classes
	c.classes = false
	c.mu.Unlock()
	for _, class := range c.o.Classes {
		key := kinds.Key{Kind: kinds.GatewayClass, Name: class.Name}
		if c.o.Object(key) != nil {
			c.done(key, 0, nil)
			continue
		}
		if !noticed && time.Now().Before(c.retries[key].at) {
			continue
		}
		err := c.create(ctx, class)
		if apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) { // what there is comes with the next look
			err = nil
		}
		c.done(key, look, err)
	}
}

func (c *Controller) create(ctx context.Context, class Class) error {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"controllerName": class.Controller, "description": class.Description}}}
	u.SetAPIVersion(gatewayv1.GroupVersion.String())
	u.SetKind("GatewayClass")
	u.SetName(class.Name)
	_, err := c.o.Client.Resource(gatewayv1.SchemeGroupVersion.WithResource("gatewayclasses")).Create(ctx, u, metav1.CreateOptions{FieldManager: ControllerName})
	if err == nil {
		c.o.Logger.Info("class created", "object", "GatewayClass "+class.Name)
	}
	return err
}
