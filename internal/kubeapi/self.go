package kubeapi

import (
	"context"
	"net/http"
	"strings"
)

var selfReviews = Resource{Group: "authentication.k8s.io", Version: "v1", Plural: "selfsubjectreviews"}

// Account is a service account.
type Account struct {
	Namespace, Name, UID string
}

// accountPrefix begins the user names of service accounts.
const accountPrefix = "system:serviceaccount:"

// Self returns the service account of this client. It returns the zero Account if the client has other
// credentials, or if the API server does not report them: before Kubernetes 1.28, or without ClusterRole
// system:basic-user, which every user has by default.
func (c *Client) Self(ctx context.Context) (Account, error) {
	var review struct {
		Status struct {
			UserInfo struct {
				Username string `json:"username"`
				UID      string `json:"uid"`
			} `json:"userInfo"`
		} `json:"status"`
	}
	err := c.do(ctx, call{
		verb: "create", method: http.MethodPost, resource: selfReviews, contentType: "application/json",
		body: map[string]any{"apiVersion": selfReviews.Group + "/" + selfReviews.Version, "kind": "SelfSubjectReview"},
	}, &review)
	if code := CodeOf(err); code == http.StatusForbidden || code == http.StatusNotFound || code == http.StatusMethodNotAllowed {
		return Account{}, nil
	}
	if err != nil {
		return Account{}, err
	}
	user := review.Status.UserInfo
	rest, ok := strings.CutPrefix(user.Username, accountPrefix)
	namespace, name, whole := strings.Cut(rest, ":")
	if !ok || !whole || user.UID == "" {
		return Account{}, nil
	}
	return Account{Namespace: namespace, Name: name, UID: user.UID}, nil
}
