#!/bin/sh
# Run once by PostgreSQL's image, when compose.yml makes the database: roles that are not superusers.
set -eu
psql -v ON_ERROR_STOP=1 -U "$POSTGRES_USER" -d "$POSTGRES_DB" -v owner="$OWNER_PASSWORD" -v service="$SERVICE_PASSWORD" <<'END'
CREATE ROLE steno_owner LOGIN PASSWORD :'owner';
CREATE ROLE steno LOGIN PASSWORD :'service';
ALTER DATABASE :"DBNAME" OWNER TO steno_owner;
REVOKE ALL ON DATABASE :"DBNAME" FROM PUBLIC;
GRANT CONNECT ON DATABASE :"DBNAME" TO steno;
END
