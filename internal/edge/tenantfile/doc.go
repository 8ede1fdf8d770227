// SPDX-License-Identifier: Apache-2.0

// Package tenantfile reads the tenants of an edge from files, watches them and keeps a tenant.Table as
// they say. Each file is a tenant: a change touches only that one. It does not route a connection.
package tenantfile
