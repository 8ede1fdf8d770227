// SPDX-License-Identifier: Apache-2.0

package extauthz

import (
	"net/http"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	rpc "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/access/authz"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/untrusted"
)

// headerFault has the code of a refusal.
const headerFault = "tombolo-fault"

// answer is what Envoy is told. The client learns the code and what is refused; why, which names
// rules, goes to Envoy alone: in the status and in the metadata for its access log.
func answer(a asked, r authz.Ruling, f *fault.Fault) *authv3.CheckResponse {
	verdict, reason, code := audit.Allow, r.Why(), ""
	if f != nil {
		verdict, reason, code = audit.Deny, f.Error(), string(f.Code)
	}
	out := &authv3.CheckResponse{
		Status: &rpc.Status{Message: untrusted.Text(reason, reasonBytes)},
		DynamicMetadata: &structpb.Struct{Fields: map[string]*structpb.Value{
			"verdict": structpb.NewStringValue(verdict),
			"cluster": structpb.NewStringValue(a.policy.Cluster),
			"flow":    structpb.NewStringValue(a.policy.Flow),
			"rule":    structpb.NewStringValue(r.Rule),
			"group":   structpb.NewStringValue(r.Group),
			"policy":  structpb.NewStringValue(r.Version.String()),
			"code":    structpb.NewStringValue(code),
		}},
	}
	if f == nil {
		if a.filter == filterHTTP {
			out.HttpResponse = &authv3.CheckResponse_OkResponse{OkResponse: &authv3.OkHttpResponse{}}
		}
		return out
	}
	out.Status.Code = int32(codes.PermissionDenied)
	if a.filter == filterHTTP {
		out.HttpResponse = &authv3.CheckResponse_DeniedResponse{DeniedResponse: &authv3.DeniedHttpResponse{
			Status: &typev3.HttpStatus{Code: statusOf(f)},
			Headers: []*corev3.HeaderValueOption{{
				Header:       &corev3.HeaderValue{Key: headerFault, Value: code},
				AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
			}},
			Body: f.What + " (" + code + ")\n",
		}}
	}
	return out
}

func statusOf(f *fault.Fault) typev3.StatusCode {
	switch fault.ClassOf(f.Code) {
	case fault.Invalid:
		return http.StatusBadRequest
	case fault.NotFound:
		return http.StatusNotFound
	case fault.Exhausted, fault.Unavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusForbidden
}
