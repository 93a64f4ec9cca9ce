-- The role of the gateway. It is no superuser and cannot bypass row-level security. Run it once, as
-- the owner of the database. For compose its password is the owner's; elsewhere set another one
-- with: ALTER ROLE upwell PASSWORD '…'
\getenv password POSTGRES_PASSWORD
CREATE ROLE upwell LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE PASSWORD :'password';
GRANT CONNECT, CREATE ON DATABASE upwell TO upwell;
